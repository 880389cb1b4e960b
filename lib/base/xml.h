/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the text of an XML document. */
#ifndef BASE_XML_H
#define BASE_XML_H

#include <stdio.h>

/*
 * TEXT as content or as an attribute's value.  What XML cannot hold (control
 * characters, bytes that are no UTF-8) becomes '?'.
 */
void xml_put(FILE *f, const char *text);

#endif
