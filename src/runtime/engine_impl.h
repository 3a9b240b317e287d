// engine_impl.h: what stands behind an Engine, for engine.cc and session.cc.
#pragma once

#include <memory>

#include "dsv4/engine.h"
#include "runtime/engine_thread.h"
#include "text/conversation.h"

namespace dsv4 {

struct Engine::Impl {
  EngineInfo info;
  EffortTable effort_table = EffortTable::kInitial;
  const Tokenizer* tokenizer = nullptr;  // of the thread's model; null: opened without
  std::shared_ptr<EngineThread> thread;  // shared with open Sessions

  // Throws Error kBadRequest if there is none.
  const Tokenizer& require_tokenizer() const;
};

}  // namespace dsv4
