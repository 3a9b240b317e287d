// chat_signals.h: signals while a conversation runs: they are noted, and whoever waits asks for
// them. Nothing ends the program but the program itself.
#pragma once

namespace dsv4 {

// While one lives, SIGINT (Ctrl-C) and SIGTERM set flags, as often as they come; so do SIGWINCH and
// SIGCONT, after which a terminal must be set up again. Before and after, they act as usual.
class ChatSignals {
 public:
  ChatSignals();
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  // SIGINT since the last take_interrupt(), or SIGTERM ever.
  static bool wants_attention();
  static bool take_interrupt();
  static bool terminated();
  static bool take_terminal_change();
};

enum class Wakeup {
  kInput,
  kAttention,       // see ChatSignals::wants_attention
  kTerminalChange,  // which is taken
};
// Waits until `descriptor` can be read, or a signal comes.
Wakeup wait_for_input(int descriptor);

}  // namespace dsv4
