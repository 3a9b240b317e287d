/* c_api_test.c: an engine of the bundled model from C: texts, requests, sessions, and what they
 * refuse. Opening one: c_api_open_test.c.
 *
 *   c_api_test MODEL_DIR
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dsv4/dsv4.h"

#define MAX_TOKENS 64

static const char kConversation[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"How many bridges does Ostholm have?\"}]}";

static dsv4_engine* open_engine(const char* model_dir) {
  dsv4_engine_options options;
  dsv4_engine_options_init(&options);
  options.model_dir = model_dir;
  options.activations = "a16";
  options.num_threads = 2;
  options.max_sessions = 2;
  options.max_step_tokens = 64;
  dsv4_engine* engine = NULL;
  dsv4_error error = {DSV4_OK, ""};
  if (dsv4_engine_open(&options, &engine, &error) != DSV4_OK)
    fprintf(stderr, "%s\n", error.message);
  CHECK(engine != NULL);
  return engine;
}

static size_t prompt_of(const dsv4_engine* engine, int32_t* tokens) {
  char text[512];
  size_t num_bytes = 0, count = 0;
  CHECK(dsv4_chat_prompt(engine, kConversation, strlen(kConversation), text, sizeof text,
                         &num_bytes, NULL) == DSV4_OK);
  CHECK(dsv4_tokenize(engine, text, num_bytes, tokens, MAX_TOKENS, &count, NULL) == DSV4_OK);
  return count;
}

static void test_token_bytes(const dsv4_engine* engine) {
  const char text[] =
      "Gr\xC3\xBC\xC3\x9F"
      "e, \xF0\x9F\xA6\x8A\n";
  int32_t tokens[MAX_TOKENS];
  char bytes[64];
  size_t count = 0, num_bytes = 0, total = 0;
  dsv4_error error = {DSV4_OK, ""};
  dsv4_engine_info info;
  dsv4_engine_get_info(engine, &info);
  CHECK(dsv4_tokenize(engine, text, strlen(text), tokens, MAX_TOKENS, &count, NULL) == DSV4_OK);
  for (size_t i = 0; i < count; ++i) {
    CHECK(dsv4_token_bytes(engine, tokens[i], NULL, 0, &num_bytes, &error) == DSV4_BAD_REQUEST);
    CHECK(dsv4_token_bytes(engine, tokens[i], bytes, num_bytes, &num_bytes, &error) == DSV4_OK);
    CHECK(total + num_bytes <= strlen(text) && memcmp(text + total, bytes, num_bytes) == 0);
    total += num_bytes;
  }
  CHECK(total == strlen(text));
  const int32_t no_tokens[] = {-1, (int32_t)info.vocab_size, INT32_MAX};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(dsv4_token_bytes(engine, no_tokens[i], bytes, sizeof bytes, &num_bytes, &error) ==
          DSV4_BAD_REQUEST);
  }
  CHECK(dsv4_token_bytes(NULL, 0, bytes, sizeof bytes, &num_bytes, &error) == DSV4_BAD_REQUEST);
}

static void test_text(const dsv4_engine* engine) {
  const char text[] = "The keeper slept.";
  int32_t tokens[MAX_TOKENS];
  char back[64];
  size_t count = 0, num_bytes = 0;
  dsv4_error error = {DSV4_OK, ""};
  CHECK(dsv4_tokenize(engine, text, strlen(text), NULL, 0, &count, &error) == DSV4_BAD_REQUEST);
  CHECK(count > 0 && count < MAX_TOKENS);
  size_t needed = count;
  CHECK(dsv4_tokenize(engine, text, strlen(text), tokens, needed - 1, &count, &error) ==
        DSV4_BAD_REQUEST);
  CHECK(dsv4_tokenize(engine, text, strlen(text), tokens, needed, &count, &error) == DSV4_OK);
  CHECK(count == needed);
  CHECK(dsv4_detokenize(engine, tokens, count, back, sizeof back, &num_bytes, &error) == DSV4_OK);
  CHECK(num_bytes == strlen(text) && memcmp(back, text, num_bytes) == 0);
  CHECK(dsv4_tokenize(engine, NULL, 0, NULL, 0, &count, &error) == DSV4_OK && count == 0);
  CHECK(dsv4_tokenize(engine, NULL, 1, NULL, 0, &count, &error) == DSV4_BAD_REQUEST);
  tokens[0] = -1;
  CHECK(dsv4_detokenize(engine, tokens, 1, back, sizeof back, &num_bytes, &error) ==
        DSV4_BAD_REQUEST);
  CHECK(dsv4_chat_prompt(engine, "{", 1, back, sizeof back, &num_bytes, &error) ==
        DSV4_BAD_REQUEST);
}

static void test_generates_and_stops(dsv4_engine* engine) {
  int32_t prompt[MAX_TOKENS];
  char text[256] = "", bytes[256];
  size_t num_bytes = 0, total_bytes = 0;
  int drawn = 0;
  dsv4_error error = {DSV4_OK, ""};
  dsv4_request* request = NULL;
  dsv4_request_options options;
  dsv4_event event;
  const char* stops[] = {" bridges"};
  int64_t computed = -1, total = -1;

  dsv4_request_options_init(&options);
  options.num_prompt_tokens = prompt_of(engine, prompt);
  options.prompt_tokens = prompt;
  options.max_tokens = 30;
  options.temperature = 0;
  options.logprobs = 2;
  options.stop_strings = stops;
  options.num_stop_strings = 1;
  CHECK(dsv4_request_submit(engine, &options, &request, &error) == DSV4_OK);
  CHECK(dsv4_request_wait(request, 100000) == 1);
  dsv4_request_prompt_progress(request, &computed, &total);
  CHECK(computed == total && total == (int64_t)options.num_prompt_tokens);
  dsv4_request_prompt_progress(request, NULL, NULL);
  for (;;) {
    CHECK(dsv4_request_next(request, &event, &error) == DSV4_OK);
    if (event.kind != DSV4_EVENT_TOKEN) break;
    CHECK(event.num_top_logprobs == 2 && event.top_logprobs[0].token == event.token);
    CHECK(event.top_logprobs[0].logprob == event.logprob && event.logprob <= 0);
    CHECK(event.text[event.text_bytes] == '\0');
    CHECK(strlen(text) + event.text_bytes < sizeof text);
    strcat(text, event.text);
    CHECK(dsv4_token_bytes(engine, event.token, bytes + total_bytes, sizeof bytes - total_bytes,
                           &num_bytes, &error) == DSV4_OK);
    total_bytes += num_bytes;
    ++drawn;
  }
  CHECK(event.kind == DSV4_EVENT_FINISH && event.finish_reason == DSV4_FINISH_STOP);
  CHECK(event.stop_string != NULL && strcmp(event.stop_string, " bridges") == 0);
  CHECK(event.completion_tokens == drawn);
  CHECK(event.prompt_tokens == (int64_t)options.num_prompt_tokens);
  strcat(text, event.text);
  CHECK(strcmp(text, "Ostholm has 13") == 0);
  CHECK(total_bytes == strlen("Ostholm has 13 bridges")); /* the stop string was drawn, too */
  CHECK(memcmp(bytes, "Ostholm has 13 bridges", total_bytes) == 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(dsv4_request_next(request, &event, &error) == DSV4_OK);
    CHECK(event.kind == DSV4_EVENT_NONE && event.text == NULL);
  }
  dsv4_request_free(request);
  dsv4_request_free(NULL);
}

static void test_request_refusals(dsv4_engine* engine) {
  dsv4_error error = {DSV4_OK, ""};
  dsv4_request* request = NULL;
  dsv4_request_options options;
  dsv4_request_options_init(&options);
  CHECK(dsv4_request_submit(engine, &options, &request, &error) == DSV4_BAD_REQUEST);
  CHECK(strstr(error.message, "prompt") != NULL);
  options.prompt_text = "The cook";
  options.prompt_text_bytes = strlen(options.prompt_text);
  options.temperature = NAN;
  CHECK(dsv4_request_submit(engine, &options, &request, &error) == DSV4_BAD_REQUEST);
  CHECK(strstr(error.message, "temperature") != NULL);
  options.temperature = 1;
  options.logprobs = -2;
  CHECK(dsv4_request_submit(engine, &options, &request, &error) == DSV4_BAD_REQUEST);
  options.logprobs = -1;
  options.num_stop_tokens = 1;
  CHECK(dsv4_request_submit(engine, &options, &request, &error) == DSV4_BAD_REQUEST);
  options.num_stop_tokens = 0;
  CHECK(dsv4_request_submit(NULL, &options, &request, &error) == DSV4_BAD_REQUEST);
  CHECK(request == NULL);
}

/* The tokens that `options` give after the test's prompt, at most MAX_TOKENS. */
static size_t draw(dsv4_engine* engine, dsv4_request_options options, int32_t* tokens) {
  int32_t prompt[MAX_TOKENS];
  size_t count = 0;
  dsv4_request* request = NULL;
  dsv4_event event;
  options.num_prompt_tokens = prompt_of(engine, prompt);
  options.prompt_tokens = prompt;
  options.max_tokens = 16;
  options.ignore_eos = 1;
  CHECK(dsv4_request_submit(engine, &options, &request, NULL) == DSV4_OK);
  for (;;) {
    CHECK(dsv4_request_next(request, &event, NULL) == DSV4_OK);
    if (event.kind != DSV4_EVENT_TOKEN) break;
    CHECK(count < MAX_TOKENS);
    tokens[count++] = event.token;
  }
  CHECK(event.kind == DSV4_EVENT_FINISH);
  dsv4_request_free(request);
  return count;
}

static int draws_same(dsv4_engine* engine, const dsv4_request_options* a,
                      const dsv4_request_options* b) {
  int32_t of_a[MAX_TOKENS], of_b[MAX_TOKENS];
  size_t count = draw(engine, *a, of_a);
  return draw(engine, *b, of_b) == count && memcmp(of_a, of_b, count * sizeof *of_a) == 0;
}

/* That each option arrives. What it means is tested in C++. */
static void test_sampling_options(dsv4_engine* engine) {
  dsv4_request_options greedy, hot, changed;
  int32_t tokens[MAX_TOKENS];
  dsv4_request_options_init(&greedy);
  greedy.temperature = 0;
  hot = greedy;
  hot.temperature = 4;
  hot.top_p = 1;
  hot.seed = 3;
  CHECK(draws_same(engine, &hot, &hot) && !draws_same(engine, &hot, &greedy));
  changed = hot;
  changed.seed = 4;
  CHECK(!draws_same(engine, &changed, &hot));
  changed = hot;
  changed.top_k = 1;
  CHECK(draws_same(engine, &changed, &greedy));
  changed = hot;
  changed.top_p = 1e-6f;
  CHECK(draws_same(engine, &changed, &greedy));
  changed = hot;
  changed.min_p = 1;
  CHECK(draws_same(engine, &changed, &greedy));

  dsv4_engine_info info;
  dsv4_engine_get_info(engine, &info);
  dsv4_request_options_init(&changed); /* the model's temperature and top_p */
  hot = changed;
  hot.temperature = info.temperature;
  hot.top_p = info.top_p;
  CHECK(draws_same(engine, &changed, &hot));

  changed = greedy;
  changed.repetition_penalty = 3;
  CHECK(!draws_same(engine, &changed, &greedy));
  float* const penalties[] = {&changed.presence_penalty, &changed.frequency_penalty};
  for (size_t i = 0; i < 2; ++i) { /* so large that no token comes twice */
    changed = greedy;
    *penalties[i] = 1e6f;
    CHECK(draw(engine, changed, tokens) == 16);
    for (size_t a = 0; a < 16; ++a) {
      for (size_t b = 0; b < a; ++b) CHECK(tokens[a] != tokens[b]);
    }
  }

  const dsv4_logit_bias force = {1234, INFINITY};
  changed = greedy;
  changed.logit_bias = &force;
  changed.num_logit_bias = 1;
  CHECK(draw(engine, changed, tokens) == 16 && tokens[0] == 1234 && tokens[15] == 1234);
  changed.stop_tokens = &force.token;
  changed.num_stop_tokens = 1;
  CHECK(draw(engine, changed, tokens) == 1);
}

static void* cancel_request(void* request) {
  dsv4_request_cancel(request);
  return NULL;
}

static void test_cancel_from_another_thread(dsv4_engine* engine) {
  dsv4_request* request = NULL;
  dsv4_request_options options;
  dsv4_event event;
  pthread_t other;
  dsv4_request_options_init(&options);
  options.prompt_text = "The cook";
  options.prompt_text_bytes = strlen(options.prompt_text);
  options.ignore_eos = 1;
  options.max_tokens = 3000;
  CHECK(dsv4_request_submit(engine, &options, &request, NULL) == DSV4_OK);
  CHECK(pthread_create(&other, NULL, cancel_request, request) == 0);
  do {
    CHECK(dsv4_request_next(request, &event, NULL) == DSV4_OK);
  } while (event.kind == DSV4_EVENT_TOKEN);
  CHECK(event.kind == DSV4_EVENT_FINISH && event.finish_reason == DSV4_FINISH_CANCELLED);
  CHECK(event.prompt_tokens > 1); /* the begin mark and the text */
  CHECK(pthread_join(other, NULL) == 0);
  dsv4_request_free(request);
}

static void test_error_event_and_cancellation(dsv4_engine* engine) {
  dsv4_engine_info info;
  dsv4_engine_get_info(engine, &info);
  CHECK(info.vocab_size > 0 && info.num_eos_tokens > 0 && strcmp(info.device, "cpu") == 0);
  dsv4_logit_bias* forbid_all = malloc((size_t)info.vocab_size * sizeof *forbid_all);
  CHECK(forbid_all != NULL);
  for (int32_t i = 0; i < (int32_t)info.vocab_size; ++i) {
    forbid_all[i].token = i;
    forbid_all[i].bias = -INFINITY;
  }
  dsv4_request* request = NULL;
  dsv4_request_options options;
  dsv4_event event;
  dsv4_request_options_init(&options);
  options.prompt_text = "The cook";
  options.prompt_text_bytes = strlen(options.prompt_text);
  options.logit_bias = forbid_all;
  options.num_logit_bias = (size_t)info.vocab_size;
  CHECK(dsv4_request_submit(engine, &options, &request, NULL) == DSV4_OK);
  free(forbid_all);
  CHECK(dsv4_request_next(request, &event, NULL) == DSV4_OK);
  CHECK(event.kind == DSV4_EVENT_ERROR && event.status == DSV4_BAD_REQUEST);
  CHECK(strstr(event.text, "logit_bias") != NULL);
  dsv4_request_free(request);

  options.num_logit_bias = 0;
  options.ignore_eos = 1;
  options.max_tokens = 3000;
  CHECK(dsv4_request_submit(engine, &options, &request, NULL) == DSV4_OK);
  CHECK(dsv4_request_next(request, &event, NULL) == DSV4_OK && event.kind == DSV4_EVENT_TOKEN);
  dsv4_request_cancel(request);
  do {
    CHECK(dsv4_request_next(request, &event, NULL) == DSV4_OK);
  } while (event.kind == DSV4_EVENT_TOKEN);
  CHECK(event.kind == DSV4_EVENT_FINISH && event.finish_reason == DSV4_FINISH_CANCELLED);
  dsv4_request_free(request);
}

static void test_session(dsv4_engine* engine) {
  int32_t prompt[MAX_TOKENS];
  size_t count = prompt_of(engine, prompt);
  dsv4_session* session = NULL;
  dsv4_error error = {DSV4_OK, ""};
  const float* logits = NULL;
  int64_t computed = 0;
  dsv4_engine_info info;
  dsv4_engine_get_info(engine, &info);
  CHECK(dsv4_session_open(engine, &session, &error) == DSV4_OK);
  CHECK(dsv4_session_logits(session, &logits, &error) == DSV4_BAD_REQUEST);
  CHECK(dsv4_session_sync(session, prompt, count - 1, &computed, &error) == DSV4_OK);
  CHECK(computed == (int64_t)count - 1);
  CHECK(dsv4_session_step(session, prompt[count - 1], &error) == DSV4_OK);
  CHECK(dsv4_session_sync(session, prompt, count, NULL, &error) == DSV4_OK);
  CHECK(dsv4_session_length(session) == (int64_t)count);
  CHECK(dsv4_session_step(session, -1, &error) == DSV4_BAD_REQUEST);
  CHECK(dsv4_session_logits(session, &logits, &error) == DSV4_OK);
  /* The answer begins with "Ostholm". */
  int32_t best = 0;
  for (int32_t i = 1; i < (int32_t)info.vocab_size; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  char text[64];
  size_t num_bytes = 0;
  CHECK(dsv4_detokenize(engine, &best, 1, text, sizeof text, &num_bytes, NULL) == DSV4_OK);
  CHECK(num_bytes > 0 && strncmp("Ostholm has", text, num_bytes) == 0);
  dsv4_session_free(session);
  dsv4_session_free(NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: c_api_test MODEL_DIR\n");
    return 2;
  }
  CHECK(strcmp(dsv4_version(), EXPECTED_VERSION) == 0);
  dsv4_engine* engine = open_engine(argv[1]);
  test_text(engine);
  test_token_bytes(engine);
  test_generates_and_stops(engine);
  test_request_refusals(engine);
  test_sampling_options(engine);
  test_cancel_from_another_thread(engine);
  test_error_event_and_cancellation(engine);
  test_session(engine);

  dsv4_engine_load load;
  dsv4_engine_get_load(engine, &load);
  CHECK(load.waiting_requests == 0);
  dsv4_engine_close(engine);
  return 0;
}
