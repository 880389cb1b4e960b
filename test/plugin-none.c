/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is no plugin. */
int plugin_none(void);

int plugin_none(void)
{
	return 0;
}
