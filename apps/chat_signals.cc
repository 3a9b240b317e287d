#include "chat_signals.h"

#include <poll.h>

#include <array>
#include <csignal>

namespace dsv4 {
namespace {

// A signal may come between the look at the flags and the wait for input; it is then seen so late.
constexpr int kPollMs = 100;

volatile std::sig_atomic_t interrupt_flag = 0;
volatile std::sig_atomic_t terminate_flag = 0;
volatile std::sig_atomic_t terminal_flag = 0;

void note_signal(int signal) {
  if (signal == SIGINT) {
    interrupt_flag = 1;
  } else if (signal == SIGTERM) {
    terminate_flag = 1;
  } else {
    terminal_flag = 1;
  }
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: waiting ends
  for (const int signal : {SIGINT, SIGTERM, SIGWINCH, SIGCONT}) {
    sigaction(signal, &action, nullptr);
  }
}

bool take(volatile std::sig_atomic_t& flag) {
  const bool was_set = flag != 0;
  flag = 0;
  return was_set;
}

}  // namespace

ChatSignals::ChatSignals() {
  take(interrupt_flag);
  take(terminate_flag);
  take(terminal_flag);
  handle_signals(note_signal);
}
ChatSignals::~ChatSignals() { handle_signals(SIG_DFL); }
bool ChatSignals::wants_attention() { return interrupt_flag != 0 || terminate_flag != 0; }
bool ChatSignals::take_interrupt() { return take(interrupt_flag); }
bool ChatSignals::terminated() { return terminate_flag != 0; }
bool ChatSignals::take_terminal_change() { return take(terminal_flag); }

Wakeup wait_for_input(int descriptor) {
  pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
  // Signals are looked at first: an end of input that comes with one would hide it.
  for (bool is_readable = false;; is_readable = poll(&input, 1, kPollMs) > 0) {
    if (ChatSignals::wants_attention()) return Wakeup::kAttention;
    if (ChatSignals::take_terminal_change()) return Wakeup::kTerminalChange;
    // Errors and hang-ups count as input: reading tells them.
    if (is_readable) return Wakeup::kInput;
  }
}

}  // namespace dsv4
