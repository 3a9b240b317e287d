/* dsv4.h: the engine for C and for whatever binds to C. It says the same as engine.h and
 * request.h, where the meaning of each option is explained.
 *
 * Strings are UTF-8. Strings and arrays that go in are copied; those that come out belong to the
 * handle that gave them, until the call named. An engine may be shared between threads; a request
 * or session belongs to one thread at a time, except for dsv4_request_cancel.
 *
 * Functions that can fail return a status and, if `error` is not null, write code and message
 * there; on DSV4_OK they leave it alone. The others take no null handle unless they say so. Outputs
 * are written on DSV4_OK only, except where said.
 */
#ifndef DSV4_DSV4_H_
#define DSV4_DSV4_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dsv4_status {
  DSV4_OK = 0,
  DSV4_BAD_REQUEST = 1,        /* an argument that the caller can correct */
  DSV4_NOT_FOUND = 2,          /* a file, tensor or name that is not there */
  DSV4_BAD_CHECKPOINT = 3,     /* a model directory that is damaged or contradicts itself */
  DSV4_UNSUPPORTED = 4,        /* valid, but this build or this device cannot do it */
  DSV4_UNSUPPORTED_DEVICE = 5, /* the device is missing or too old */
  DSV4_OUT_OF_MEMORY = 6,      /* host or device memory */
  DSV4_OVERLOADED = 7,         /* try again later */
  DSV4_IO = 8,                 /* the operating system refused a read or a write */
  DSV4_INTERNAL = 9,           /* anything else: a bug of dsv4; please report it */
  DSV4_CANCELLED = 10          /* the caller's load_progress ended the loading */
} dsv4_status;

typedef struct dsv4_error {
  dsv4_status status;
  char message[512]; /* ends in a NUL; cut at a character if it is longer */
} dsv4_error;

typedef struct dsv4_engine dsv4_engine;
typedef struct dsv4_request dsv4_request;
typedef struct dsv4_session dsv4_session;

/* "0.1.0" */
const char* dsv4_version(void);

/* ---- Engine ---- */

typedef enum dsv4_load_stage { DSV4_LOAD_FILES = 0, DSV4_LOAD_TENSORS = 1 } dsv4_load_stage;

/* How far a checkpoint is opened: its files first, then its tensors. */
typedef struct dsv4_load_progress {
  dsv4_load_stage stage;
  int64_t done, total; /* files or tensors; done == total ends the stage */
} dsv4_load_progress;

/* Called in the thread that opens the engine; `progress` is valid during the call. Returns 0 to go
 * on; anything else ends the loading, and dsv4_engine_open returns DSV4_CANCELLED. */
typedef int (*dsv4_load_callback)(const dsv4_load_progress* progress, void* user_data);

typedef struct dsv4_engine_options {
  const char* model_dir;
  const char* device;      /* null: "cpu" */
  int32_t num_threads;     /* of a device that computes on the host; 0: all cores */
  const char* activations; /* null: "auto" */
  const char* rows;        /* null: "simulated" */
  const char* kv;          /* null: fp8, and f32 with exact rows */
  int64_t kv_tokens;       /* 0: a whole context for each session, at most 32768 tokens */
  int32_t max_sessions;
  int64_t max_step_tokens;
  int32_t max_waiting_requests;
  int32_t without_tokenizer;        /* not 0: token ids only */
  dsv4_load_callback load_progress; /* null: nobody is told */
  void* load_progress_data;         /* handed on to it */
} dsv4_engine_options;

/* Fills in the defaults; model_dir is null. */
void dsv4_engine_options_init(dsv4_engine_options* options);

dsv4_status dsv4_engine_open(const dsv4_engine_options* options, dsv4_engine** engine,
                             dsv4_error* error);
/* Cancels what runs. Requests and sessions may outlive it. Null is allowed. */
void dsv4_engine_close(dsv4_engine* engine);

typedef struct dsv4_engine_info {
  int64_t vocab_size;
  int64_t max_session_tokens;
  int32_t bos_token;
  const int32_t* eos_tokens; /* this and the strings live as long as the engine */
  size_t num_eos_tokens;
  const char* device;
  const char* precision_note;
  float temperature, top_p;
} dsv4_engine_info;
void dsv4_engine_get_info(const dsv4_engine* engine, dsv4_engine_info* info);

typedef struct dsv4_engine_load {
  int64_t waiting_requests, running_requests, free_sessions, free_kv_pages;
} dsv4_engine_load;
void dsv4_engine_get_load(const dsv4_engine* engine, dsv4_engine_load* load);

/* ---- Text. `count` and `num_bytes` receive the whole size, also when `capacity` is smaller; then
 * the status is DSV4_BAD_REQUEST and nothing is written to the buffer, which may be null with
 * capacity 0. Texts may hold NUL and do not end in one. ---- */

dsv4_status dsv4_tokenize(const dsv4_engine* engine, const char* text, size_t text_bytes,
                          int32_t* tokens, size_t capacity, size_t* count, dsv4_error* error);
dsv4_status dsv4_detokenize(const dsv4_engine* engine, const int32_t* tokens, size_t num_tokens,
                            char* text, size_t capacity, size_t* num_bytes, dsv4_error* error);
/* What one token stands for, e.g. that of a token event; may be part of a UTF-8 character. */
dsv4_status dsv4_token_bytes(const dsv4_engine* engine, int32_t token, char* bytes, size_t capacity,
                             size_t* num_bytes, dsv4_error* error);
dsv4_status dsv4_chat_prompt(const dsv4_engine* engine, const char* json, size_t json_bytes,
                             char* text, size_t capacity, size_t* num_bytes, dsv4_error* error);

/* ---- Requests ---- */

typedef struct dsv4_logit_bias {
  int32_t token;
  float bias;
} dsv4_logit_bias;

typedef struct dsv4_request_options {
  /* The prompt: tokens if they are not null, else text. */
  const int32_t* prompt_tokens;
  size_t num_prompt_tokens;
  const char* prompt_text;
  size_t prompt_text_bytes;
  int32_t add_bos;

  int64_t max_tokens;
  float temperature; /* negative: the model's */
  float top_p;       /* negative: the model's */
  float min_p;
  int32_t top_k;
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed;
  const dsv4_logit_bias* logit_bias;
  size_t num_logit_bias;
  const char* const* stop_strings; /* each ends in a NUL */
  size_t num_stop_strings;
  const int32_t* stop_tokens;
  size_t num_stop_tokens;
  int32_t ignore_eos;
  int32_t logprobs; /* -1: none */
} dsv4_request_options;

/* Fills in the defaults; there is no prompt. */
void dsv4_request_options_init(dsv4_request_options* options);

dsv4_status dsv4_request_submit(dsv4_engine* engine, const dsv4_request_options* options,
                                dsv4_request** request, dsv4_error* error);

typedef enum dsv4_event_kind {
  DSV4_EVENT_TOKEN = 0,
  DSV4_EVENT_FINISH = 1,
  DSV4_EVENT_ERROR = 2,
  DSV4_EVENT_NONE = 3 /* nothing comes any more */
} dsv4_event_kind;

typedef enum dsv4_finish_reason {
  DSV4_FINISH_STOP = 0,
  DSV4_FINISH_LENGTH = 1,
  DSV4_FINISH_CANCELLED = 2
} dsv4_finish_reason;

typedef struct dsv4_token_logprob {
  int32_t token;
  float logprob;
} dsv4_token_logprob;

/* Fields that an event's kind does not have are 0. */
typedef struct dsv4_event {
  dsv4_event_kind kind;
  /* Token and finish: the text; error: the message. Also ends in a NUL. */
  const char* text;
  size_t text_bytes;
  /* Token. */
  int32_t token;
  float logprob; /* if logprobs were asked for */
  const dsv4_token_logprob* top_logprobs;
  size_t num_top_logprobs;
  /* Finish. */
  dsv4_finish_reason finish_reason;
  const char* stop_string; /* null: none ended it */
  int64_t prompt_tokens, completion_tokens;
  /* Error. */
  dsv4_status status;
} dsv4_event;

/* Waits for the next event. Its pointers are valid until the next call for this request. An error
 * event is an event: the status is DSV4_OK then, too. */
dsv4_status dsv4_request_next(dsv4_request* request, dsv4_event* event, dsv4_error* error);
/* 1 if dsv4_request_next returns at once, after waiting for that up to `timeout_ms`; else 0. */
int dsv4_request_wait(dsv4_request* request, int64_t timeout_ms);
/* How many tokens of the prompt are computed, of how many, as of some recent step; either pointer
 * may be null. Any thread may call it. */
void dsv4_request_prompt_progress(const dsv4_request* request, int64_t* computed_tokens,
                                  int64_t* total_tokens);
/* Any thread may call it. */
void dsv4_request_cancel(dsv4_request* request);
/* Cancels it if it has not ended. Null is allowed. */
void dsv4_request_free(dsv4_request* request);

/* ---- Sessions ---- */

dsv4_status dsv4_session_open(dsv4_engine* engine, dsv4_session** session, dsv4_error* error);
/* `computed`, which may be null: how many of the tokens were computed. */
dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t num_tokens,
                              int64_t* computed, dsv4_error* error);
dsv4_status dsv4_session_step(dsv4_session* session, int32_t token, dsv4_error* error);
int64_t dsv4_session_length(const dsv4_session* session);
/* Logits after the last token, [vocab_size], valid until the session changes. */
dsv4_status dsv4_session_logits(const dsv4_session* session, const float** logits,
                                dsv4_error* error);
/* Null is allowed. */
void dsv4_session_free(dsv4_session* session);

#ifdef __cplusplus
}
#endif

#endif /* DSV4_DSV4_H_ */
