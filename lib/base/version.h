/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that names the version. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define TRISECT_VERSION "0.1.0"

#endif
