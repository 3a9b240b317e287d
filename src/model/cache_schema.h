// cache_schema.h: what the cache keeps for a model: the bridge from its config to kv/.
#pragma once

#include "checkpoint/model_config.h"
#include "kv/schema.h"
#include "model/options.h"

namespace dsv4 {

// Layer i of the schema is layer i of the model; the draft block, if wanted, is the last one.
// Throws Error kBadRequest when the options contradict each other.
CacheSchema make_cache_schema(const ModelConfig& config, const ModelOptions& options,
                              bool with_draft);

}  // namespace dsv4
