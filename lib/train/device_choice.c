/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/device_choice.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/device.h"

int device_choice(const struct boot *b, int count, struct err *e)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (count == 1)
		return 0;
	if (b->node_rank < count)
		return b->node_rank;
	return err_set(e, CODE_LAUNCH,
		       "rank %d is number %d (from 0) on %s, where %d GPUs are "
		       "visible (CUDA_VISIBLE_DEVICES %s): a rank needs one of "
		       "its own: start with --gpus-per-task=1, or with as many "
		       "in --gres=gpu:N as in --ntasks-per-node=N",
		       b->rank, b->node_rank, b->host, count,
		       visible ? visible : "is not set");
}

#ifdef TRISECT_CUDA
int device_choice_open(const struct boot *b, struct boot_card *card,
		       struct err *e)
{
	struct device_info info;
	int number = device_choice(b, device_count(), e);

	if (number < 0 || device_open(number, &info, e))
		return -1;
	snprintf(card->device, sizeof(card->device), "%s", info.id);
	return b->rank == 0 && b->world > 1 ? comm_id(card->comm_id, e) : 0;
}
#else
int device_choice_open(const struct boot *b, struct boot_card *card,
		       struct err *e)
{
	(void)card;
	return err_set(e, CODE_LAUNCH,
		       "rank %d cannot use a GPU: this program was built "
		       "without CUDA (make CUDA=1)",
		       b->rank);
}
#endif
