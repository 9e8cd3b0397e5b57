#pragma once
/** @file Ctrl-C, taken as a wish. */

namespace bs::example {

/** @brief From now on the first SIGINT, SIGTERM, SIGHUP or SIGPIPE only sets a flag and says so;
 * the second ends the program at once, but for SIGPIPE, which every further word to a reader that
 * is gone raises. SIGHUP stays ignored where nohup has it so. */
void catch_interrupts();
/** @brief Whether there was one. */
bool interrupted();

}  // namespace bs::example
