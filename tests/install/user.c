/* user.c: a program against the installed C API: prints the model's vocabulary size. */
#include "dsv4/dsv4.h"
#include <stdio.h>

int main(int argc, char** argv) {
  dsv4_engine_options options;
  dsv4_engine_options_init(&options);
  if (argc != 2) return 2;
  options.model_dir = argv[1];
  dsv4_engine* engine = NULL;
  dsv4_error error;
  if (dsv4_engine_open(&options, &engine, &error) != DSV4_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  dsv4_engine_info info;
  dsv4_engine_get_info(engine, &info);
  printf("dsv4 %s, vocabulary of %lld\n", dsv4_version(), (long long)info.vocab_size);
  dsv4_engine_close(engine);
  return 0;
}
