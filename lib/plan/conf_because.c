/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "lib/plan/conf.h"

/* Fields of Megatron's that are no settings here. */
static const struct {
	const char *name, *why;
} table[] = {
	{"ckpt_format", "checkpoints have one format"},
	{"expert_tensor_parallel_num_weight_shards",
	 "experts are cut by expert_tensor_parallel_size alone; "
	 "data_parallel_sharding_strategy optim_grads_params shards them "
	 "further"},
	{"heterogeneous_layers_config_path",
	 "no other file is read; "
	 "--heterogeneous-layers-config-encoded-json has its text"},
	{"init_method", "weights start from init_method_std, not from a "
			"function"},
	{"output_layer_init_method",
	 "output layers start from init_method_std / sqrt(2 num_layers), not "
	 "from a function"},
	{"restore_modelopt_state",
	 "the weights of a model that ModelOpt has quantised go with the ranges of its quantisers, which checkpoints would have to keep, and with ops that round by them, which train-worker does not have"},
	{"spec", "the code of every layer follows from transformer_impl, the "
		 "shape and spec.overrides, not from a Python function"},
	{"tensor_parallel_num_weight_shards",
	 "weights are cut by tensor_model_parallel_size alone; "
	 "data_parallel_sharding_strategy optim_grads_params shards them "
	 "further"},
	{"transformer", "its fields stand in the group that they belong to"},
	{"transformer_layer_spec",
	 "the code of every layer follows from transformer_impl, the shape "
	 "and spec.overrides, not from a Python function"},
	{"use_arbitrary_attention_mask",
	 "attention is causal, within window_size"},
	{"use_checkpoint_args", "the config says what the model is, and a "
				"checkpoint of another one is refused"},
	{"use_mp_args_from_checkpoint_args",
	 "any placement loads a checkpoint of any other"},
};

const char *conf_because(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (!strcmp(table[i].name, name))
			return table[i].why;
	return NULL;
}
