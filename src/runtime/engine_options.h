// engine_options.h: the public options of an engine, checked and in the terms of the loader.
#pragma once

#include "dsv4/engine.h"
#include "runtime/loaded_model.h"

namespace dsv4 {

// Throws Error kBadRequest naming the option. Ranges that LoadedModel checks are left to it.
ModelOpenOptions model_open_options(const EngineOptions& options);

EngineInfo describe(LoadedModel& model);

}  // namespace dsv4
