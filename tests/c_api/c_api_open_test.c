/* c_api_open_test.c: opening an engine from C: what is refused, with which message, and how loading
 * is followed and ended.
 *
 *   c_api_open_test MODEL_DIR
 */
#include <string.h>

#include "check.h"
#include "dsv4/dsv4.h"

static void test_open_refusals(const char* model_dir) {
  dsv4_engine_options options;
  dsv4_engine* engine = NULL;
  dsv4_error error = {DSV4_OK, ""};
  dsv4_engine_options_init(&options);
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_BAD_REQUEST);
  CHECK(error.status == DSV4_BAD_REQUEST && strstr(error.message, "model_dir") != NULL);
  CHECK(dsv4_engine_open(NULL, &engine, NULL) == DSV4_BAD_REQUEST);
  options.model_dir = "no/such/model";
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_NOT_FOUND);
  options.model_dir = model_dir;
  CHECK(dsv4_engine_open(&options, NULL, &error) == DSV4_BAD_REQUEST);
  options.device = "abacus";
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_UNSUPPORTED_DEVICE);
  options.device = NULL;
  options.num_threads = -1;
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_BAD_REQUEST);
  CHECK(strstr(error.message, "num_threads") != NULL);
  options.num_threads = 0;
  options.kv = "fp4";
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_BAD_REQUEST);
  CHECK(strstr(error.message, "kv") != NULL);
  CHECK(engine == NULL);
  dsv4_engine_close(NULL);
}

static void test_long_messages_are_cut_at_a_character(void) {
  char path[2001]; /* of U+00E9, two bytes each, at both parities of the cut */
  for (size_t shift = 0; shift < 2; ++shift) {
    dsv4_engine_options options;
    dsv4_engine* engine = NULL;
    dsv4_error error = {DSV4_OK, ""};
    memset(path, 'x', sizeof path);
    for (size_t i = shift; i + 2 < sizeof path; i += 2) memcpy(path + i, "\xC3\xA9", 2);
    path[sizeof path - 1] = '\0';
    dsv4_engine_options_init(&options);
    options.model_dir = "m";
    options.device = path;
    dsv4_status status = dsv4_engine_open(&options, &engine, &error);
    CHECK(status != DSV4_OK && error.status == status);
    size_t size = strlen(error.message);
    CHECK(size >= sizeof error.message - 2 && size < sizeof error.message);
    CHECK((unsigned char)error.message[size - 1] != 0xC3);
  }
}

typedef struct {
  int calls, cancel_at; /* the call that ends the loading; 0: none */
  dsv4_load_progress last;
} Progress;

static int note_progress(const dsv4_load_progress* now, void* user_data) {
  Progress* seen = user_data;
  CHECK(now->done >= 0 && now->done <= now->total && now->total > 0);
  if (seen->calls == 0 || now->stage != seen->last.stage) {
    CHECK(now->stage == (seen->calls == 0 ? DSV4_LOAD_FILES : DSV4_LOAD_TENSORS));
    CHECK(seen->calls == 0 || seen->last.done == seen->last.total);
  } else {
    CHECK(now->done >= seen->last.done && now->total == seen->last.total);
  }
  seen->last = *now;
  return ++seen->calls == seen->cancel_at ? -1 : 0;
}

static void test_load_progress(const char* model_dir) {
  Progress seen = {0};
  dsv4_engine_options options;
  dsv4_engine* engine = NULL;
  dsv4_error error = {DSV4_OK, ""};
  dsv4_engine_options_init(&options);
  CHECK(options.load_progress == NULL);
  options.model_dir = model_dir;
  options.without_tokenizer = 1;
  options.load_progress = note_progress;
  options.load_progress_data = &seen;
  CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_OK);
  CHECK(seen.last.stage == DSV4_LOAD_TENSORS && seen.last.done == seen.last.total);
  char bytes[64];
  size_t num_bytes = 0;
  CHECK(dsv4_token_bytes(engine, 0, bytes, sizeof bytes, &num_bytes, &error) == DSV4_BAD_REQUEST);
  CHECK(strstr(error.message, "tokenizer") != NULL);
  dsv4_engine_close(engine);

  engine = NULL;
  const int num_calls = seen.calls, at[] = {1, num_calls}; /* the files' first, the tensors' last */
  for (size_t i = 0; i < 2; ++i) {
    memset(&seen, 0, sizeof seen);
    seen.cancel_at = at[i];
    CHECK(dsv4_engine_open(&options, &engine, &error) == DSV4_CANCELLED);
    CHECK(error.status == DSV4_CANCELLED && strstr(error.message, "load_progress") != NULL);
    CHECK(engine == NULL && seen.calls == at[i]);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: c_api_open_test MODEL_DIR\n");
    return 2;
  }
  test_open_refusals(argv[1]);
  test_long_messages_are_cut_at_a_character();
  test_load_progress(argv[1]);
  return 0;
}
