#include <bs/examples/support/interrupt.h>
#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace bs::example {
namespace {

volatile sig_atomic_t flag = 0;

/// Does only what a signal handler may: write(2) and _exit(2) among it.
void handle(int signal) {
  // A reader that is gone raises SIGPIPE with every word that is written, the one below included. A
  // terminal that is closed raises SIGHUP, and so does its shell. Nobody asks again by either.
  if (flag != 0 && (signal == SIGPIPE || signal == SIGHUP)) return;
  if (flag != 0) _exit(130);
  flag = 1;
  constexpr std::string_view text = "\nstopping after this step; Ctrl-C again stops at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaction(signal, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // else nohup's wish
}

bool interrupted() { return flag != 0; }

}  // namespace bs::example
