/* check.h: a condition that ends the test program. For the tests in this folder. */
#ifndef DSV4_TESTS_C_API_CHECK_H_
#define DSV4_TESTS_C_API_CHECK_H_

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

#endif /* DSV4_TESTS_C_API_CHECK_H_ */
