# awk -f unity.awk -v size=N HEADERS... -- SOURCES...: shares the sources out among groups of at
# most N that one file can include, and prints "GROUP SOURCE" a line. A source may keep a name to
# itself, in a namespace without a name or as a macro: no other of its group then knows something
# else by it. A source that makes all names of another namespace its own stays alone.
#
# Names are read as clang-format lays them out: a declaration outside of functions and types begins
# its line.

# What the declaration that begins this line names; "" if it is none.
function name_of(line) {
  if (line ~ /^#define /) sub(/^#define /, "", line)
  if (line !~ /^[A-Za-z_]/ || line ~ /^(namespace|template|using namespace|TEST_CASE)/) return ""
  if (line ~ /^using [A-Za-z_:]+;/) sub(/^using .*:/, "", line)
  sub(/ ?([({=[;]| : ).*/, "", line)
  if (!match(line, /[A-Za-z_][A-Za-z0-9_]*$/)) return ""
  # A member's name is its class's.
  return substr(line, RSTART - 2, 2) == "::" ? "" : substr(line, RSTART)
}

# Adds the names of a header, and of those it includes, to those the source knows.
function include(header,    parts, n, i) {
  if (header in seen) return
  seen[header] = 1
  n = split(names[header], parts, " ")
  for (i = 1; i <= n; ++i) known[parts[i]] = 1
  n = split(includes[header], parts, " ")
  for (i = 1; i <= n; ++i) include(parts[i])
}

function fits(group,    name) {
  if (alone || count[group] >= size) return 0
  for (name in own)
    if ((group, name) in owned || (group, name) in knows) return 0
  for (name in known)
    if ((group, name) in owned) return 0
  return 1
}

# Finds a group for the source that was read, and forgets it.
function place(    group, name) {
  if (source == "") return
  for (group = 1; group <= groups && !fits(group);) ++group
  if (group > groups) groups = group
  count[group] = alone ? size : count[group] + 1
  for (name in own) owned[group, name] = 1
  for (name in known) knows[group, name] = 1
  print group, source
  source = ""
}

BEGIN {
  for (i = 1; i < ARGC && ARGV[i] != "--";) ++i
  ARGV[i] = ""
  while (++i < ARGC) is_source[ARGV[i]] = 1
}
FNR == 1 {
  place()
  unnamed = alone = 0
  if (FILENAME in is_source) source = FILENAME
  split("", own)
  split("", known)
  split("", seen)
}
/^using (enum|namespace) / && ! / (bs|bs::c|bs::test|std::.*);/ { alone = 1 }
/^namespace \{/ { unnamed = 1 }
/^\}  \/\/ namespace$/ { unnamed = 0 }
match($0, /^#include <bs\//) {
  header = substr($0, RLENGTH + 1, length($0) - RLENGTH - 1)
  if (source != "") include(header)
  else includes[FILENAME] = includes[FILENAME] " " header
}
{
  name = name_of($0)
  if (name == "") next
  if (source == "") names[FILENAME] = names[FILENAME] " " name
  else if (unnamed || /^(static|inline|using|#define) /) own[name] = 1
  else known[name] = 1
}
unnamed && /^constexpr .*, [a-z_0-9]+ = / {  # several in one declaration
  n = split($0, parts, ", ")
  for (i = 2; i <= n; ++i)
    if (match(parts[i], /^[A-Za-z_0-9]+ = /)) own[substr(parts[i], 1, RLENGTH - 3)] = 1
}
END { place() }
