/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin of the ABI after this one, which is refused. */
#include "kernels/plugin.h"

const struct plugin *trisect_plugin(void);

const struct plugin *trisect_plugin(void)
{
	static const struct plugin plugin = {.abi = PLUGIN_ABI + 1};

	return &plugin;
}
