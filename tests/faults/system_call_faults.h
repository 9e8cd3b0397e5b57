#pragma once
/** @file System calls that fail: the linker puts functions of ours in the place of libc's (--wrap).
 */
#include <bs/lib/check.h>
#include <doctest/doctest.h>

#include <span>
#include <vector>

namespace bs::test {

enum class Call {
  none,
  open,
  write,
  read,
  fsync,
  close,
  rename,
  flock,
  fstat,
  lseek,
  unlink,
  opendir
};

/** @brief What is to go wrong: the call of this number, with `reason`, or for 0 by doing half its
 *  work. */
struct Fault {
  Call call = Call::none;
  int number = 0;
  int reason = 0;
  int seen = 0;  ///< calls of this kind so far
};
/** @brief The fault of just now. */
extern Fault fault;

/** @brief A call and the ways in which it can go wrong. */
struct FaultyCall {
  Call call;
  const char* name;
  std::vector<int> reasons;
};
std::span<const FaultyCall> faulty_calls();

/** @brief Calls `attempt` once for each fault that its work meets. @return how many these are */
template <class Attempt>
int for_faults(Attempt&& attempt) {
  int tried = 0;
  for (const FaultyCall& kind : faulty_calls())
    for (const int reason : kind.reasons)
      for (int number = 0;; ++number) {
        CAPTURE(kind.name);
        CAPTURE(reason);
        CAPTURE(number);
        if (!attempt(Fault{kind.call, number, reason})) break;
        ++tried;
      }
  return tried;
}

/** @brief Does `work` with a fault. @return whether it met it */
template <class Work>
bool meets(const Fault& given, bool& fails, Work&& work) {
  fault = given;
  fails = false;
  try {
    work();
  } catch (const IoError&) {
    fails = true;
  }
  const bool met = fault.seen > fault.number;
  fault = {};
  return met;
}

}  // namespace bs::test
