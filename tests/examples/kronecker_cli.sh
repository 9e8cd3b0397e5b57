#!/usr/bin/env bash
# What users of kronecker see: help, errors, and the figures of each mode.
program=$1
. "$(dirname "$0")/cli.sh"

"$program" --help >out
grep -q -e '--dtype' out || fail 'help does not list --dtype' out

expect_usage_error f31 check 3 4 --dtype f31
expect_usage_error i32 check 3 4 --dtype i32
expect_usage_error factors check 3
expect_usage_error extent check 3 0
expect_usage_error measure measure 3 4
expect_usage_error terrain terrain
expect_usage_error text text
expect_usage_error graph text --data x --graph on --device cpu
expect_usage_error spacing terrain --data x.npy --spacing 1

"$program" check 5 2 3 4 --device cpu --dtype f64 >out
[ "$(grep -c 'allclose True' out)" = 9 ] || fail 'the ways differ' out
"$program" bench 4 32 32 --device cpu --runs 1 >out
grep -q 'state size 1024, 2.621e+05 multiply-adds, 26 of' out || fail 'other figures' out
"$program" profile 4 8 8 --device cpu --trace trace.json >out
grep -q 'fused: kron_matmul' out || fail 'no table' out
grep -q '"traceEvents":\[{"name"' trace.json || fail 'no trace' trace.json
seq 1000 >text
"$program" text --data text --device cpu --steps 3 --profile text.json >out
grep -q 'profile of 1 steps; text.json is their trace' out || fail 'no profile of text' out
grep -q '"name":"gelu_backward"' text.json || fail 'no trace of text' text.json
