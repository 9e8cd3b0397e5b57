#!/usr/bin/env bash
# Runs small tests of every family of kernels under compute-sanitizer, on the first GPU.
#
#   tests/sanitize_kernels.sh [-b FOLDER] [-f REGEX] [-j JOBS] [-s SECONDS] [-o FOLDER] [TOOL...]
#
#   -b  where test_kernels and test_nn are; build/release/tests
#   -f  only families whose name this matches; all
#   -j  patterns of tests at a time; all processors
#   -s  time limit of a pattern of tests; 600
#   -o  where the tools' reports go; a temporary folder
#   TOOL  memcheck, racecheck, synccheck, initcheck; all of them
#
# Prints a line for each tool, family and pattern of its tests, and fails where one finds an error.
# Of long sweeps every seventh case is tried (tests/support/sanitized.h).
# What does not end in time is "cut off": what it did until then was clean. Errors that the library
# asks for and handles, such as a symbol that a kernel may or may not have, are not reported.
#
# racecheck follows less than there is: not copies that arrive at a barrier by themselves
# (cp.async.mbarrier.arrive), so that each copy of an f64 product looks like a race with the loads
# behind that barrier; and not that __syncwarp() orders the accesses of other lanes before the arrival
# of one, which is how the warps of attention give slots of their rings back, and how one warpgroup
# gives the other weights. Sums by index let lanes write their numbers to one place at once, and
# whichever stays says that there are several. Where a report has no other races, it is "known".
#
# initcheck does not see what the copy engine stores (cp.async.bulk to global memory, with a tensor map
# or without). Attention on wgmma stores its results so. One test gives it memory that nobody filled:
# there reads of these results alone are "known".
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/release/tests wanted=. jobs=$(nproc) seconds=600 out=""
while getopts b:f:j:s:o: option; do
  case $option in
    b) folder=$OPTARG ;;
    f) wanted=$OPTARG ;;
    j) jobs=$OPTARG ;;
    s) seconds=$OPTARG ;;
    o) out=$OPTARG ;;
    *) sed -n '4,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck synccheck initcheck)
command -v compute-sanitizer > /dev/null || { echo "compute-sanitizer is not on the path" >&2; exit 2; }
out=${out:-$(mktemp -d)}
mkdir -p "$out"

# A family, its program, and doctest's patterns of tests; ? stands for a comma.
families=(
  "elementwise test_kernels add,sigmoid,where,gelu,powers*,dropout*,activation_dropout*"
  "turned_operands test_kernels *lie?across*,matrices?are?turned*,functions?of?views*"
  "compare test_kernels comparisons*,NaN?differs*"
  "unary test_kernels neg,abs,exp,log,sqrt,rsqrt,reciprocal,clamp,functions?of*,functions?at*"
  "elementary test_kernels elementary*,rounding,remainder*,which?numbers*,relatives?of?relu,glu"
  "copies test_kernels copies*,casts*,concat,pad"
  "fill test_kernels arange,linspace?meets*,eye,triangles*"
  "rope test_kernels rope?turns*,rope?takes*"
  "reductions test_kernels sum,mean,argmax*,sums?over*,reductions?of?views,*axes?apart*,logsumexp*"
  "order test_kernels sort*,cumsum*,unique*,searchsorted,index_select*"
  "topk test_kernels positions?are*,short?rows*,rows?about*,kthvalue*,block_topk?keeps*"
  "gather test_kernels gather,gather?of*,scatter:*,scatter_add*,index_add*,take*,nonzero*"
  "selection test_kernels bincount*,one_hot?of*,masked_select?of*,index_add*,a?single?long*,multinomial*"
  "scans test_kernels the?gradient?of?cumprod*,cumsum?and?cumprod*,reductions?of?many*"
  "words test_kernels bools?in?words*,concat?of*,soft_cross_entropy?of*,target_weights*"
  "embedding test_kernels embedding,embedding?gives*,embedding?takes*"
  "softmax test_kernels softmax*,cross_entropy*,losses*"
  "norms test_kernels layer_norm,rms_norm,batch_norm,group_norm,a?sum?and*"
  "norms_further test_kernels batch_norm?with*,batch_norm?adds*,batch_norm?by*,group_norm?and*"
  "norms_of_rows test_kernels norms?of?few*,norms?of?long*"
  "alike test_kernels equal?and*,allclose*"
  "extremes test_kernels places?of?extremes*,what?equals*,gradients?of?reductions*,*rows?of?few?columns*"
  "index_order test_kernels index_select_backward?of*,argsort?of?one*"
  "borders test_kernels the?gradient?of?a?slice*,pad:?a?constant*,neighbours*,operands?of?many*"
  "layouts test_kernels layout_from_rows?and?layout*,layout_from_mask?and*,relayout?keeps*,block_float:*"
  "bias_gradient test_kernels the?gradient?of?a?bias:?what*,the?gradient?of?a?bias:?un*"
  "optimisers test_kernels adamw?follows*,lamb?follows*,sgd?follows*,clip_gradients*,muon?follows*"
  "optimisers_further test_kernels adam?follows*,lion?follows*,rmsprop?follows*,ema:*,axpby*"
  "gemm test_kernels gemm?example*,gemm:?activations*,matmul,linear"
  "feed_forward test_kernels feed_forward,feed_forward?takes*,feed_forward?keeps*"
  "gemm_warpgroups test_kernels gemm:?the?same?epilogue*,gemm:?batches?of?operands*"
  "block_sparse test_kernels block-sparse?products:?every*,block-sparse?products:?edges"
  "block_sparse_large test_kernels block-sparse?products:?whole*,block-sparse?products?of?f32:?whole*"
  "block_sparse_epilogue test_kernels block-sparse?epilogues:?sums*,block-sparse?reductions:?over*"
  "block_sparse_softmax test_kernels block-sparse?softmax:?masks*,block-sparse?softmax:?long*"
  "attention test_kernels sparse_attention:?lengths*,sparse_attention:?all?options*"
  "attention_large test_kernels sparse_attention:?extremes*,sparse_attention:?ragged?batches"
  "attention_wide test_kernels sparse_attention:?a?head_dim?of*,sparse_attention:?wide*,*values?of?another*"
  "attention_biases test_kernels sparse_attention:?a?bias?and?a?table*,sparse_attention:?relative*"
  "attention_ragged test_kernels sparse_attention:?ragged?sequences*,*stays?in?its?ragged*"
  "attention_made test_kernels sparse_attention:?layouts?made*"
  "device_lists test_kernels *lists?of?tiles?made*,*strips?counted?on*"
  "attention_bounds test_kernels sparse_attention:?bounds*"
  "attention_terms test_kernels sparse_attention:?terms*"
  "attention_packed test_kernels sparse_attention:?packed*,sparse_attention:?a?packed*"
  "attention_leaps test_kernels sparse_attention:?scores*,sparse_attention:?head_dims*"
  "attention_columns test_kernels sparse_attention:?columns*,sparse_attention:?a?graph*"
  "attention_decode test_kernels decode_attention:?heads*,*keys?of?several?CTAs,*several?queries?*"
  "attention_decode_pages test_kernels decode_attention:?pages*,decode_attention:?terms*"
  "attention_paged test_kernels paged_attention?gives*,paged_attention:*"
  "lstm test_kernels lstm:?nothing*,lstm:?16-bit*,lstm:?NaN*"
  "recurrent test_kernels recurrent?layers*"
  "transducer test_kernels transducer_joint,transducer_loss,ctc_loss?gives*"
  "conv test_nn block_sparse_conv2d:?large*"
  "conv_dense test_kernels conv2d:?bias*,conv_transpose2d*"
  "conv_operation test_kernels conv2d_operation:?every*,conv2d_operation:?bias*"
  "conv_warpgroups test_kernels conv2d_operation:?warpgroups*"
  "images test_kernels max_pool2d,max_pool2d?finds*,avg_pool2d,interpolate,adaptive_avg_pool2d"
  "norms_of_images test_kernels group_norm?of?many*,batch_norm?of*,max_pool2d?finds*"
  "images_in_planes test_kernels maps?of?many*,pad:?images*,pad:?reflections*"
  "kron test_kernels kron_matmul:?both*,kron_matmul:?sizes*"
  "kron_solve test_kernels kron_solve?and*,kron_solve:?batched*,kron_shifted_solve?and*,inverse:*"
  "random test_kernels rand*,uniform_*,bernoulli,permutation"
)

# A pattern that names no test would be clean for ever.
for family in "${families[@]}"; do
  read -r name program patterns <<< "$family"
  [[ $name =~ $wanted ]] || continue
  IFS=, read -ra each <<< "$patterns"
  for pattern in "${each[@]}"; do
    [[ $("$folder/$program" --count --test-case="$pattern") == *": "[1-9]* ]] ||
      { echo "$name: no test of $program is called $pattern" >&2; exit 2; }
  done
done

# Whether all errors are races between the copies and the loads of f64 products, or between what fills
# the slots of attention and what reads them.
known_races() {
  local copies='copy_async|copy_chunk|load_bytes|AttentionForwardKernel.*::produce'
  local ring='AttentionKeyRing<.*::(copy_step|describe_step|produce)|SummedRow.*::add'
  local handed='store_shared|attention_dkv_wgmma_[a-z0-9_]*_pair'
  local writes="Write access at .*($copies|$ring|$handed)"
  local scores='MultiplyF64::load_a|AttentionHide|AttentionShape|AttentionTile|Walk::seek'
  scores+='|AttentionBits::head'
  local steps='AttentionKeySteps|AttentionScorePartner|AttentionKeyPartner|load_shared'
  local inlined='attention_dkv_wgmma_[a-z0-9_]*[+].* in warpgroup_backward_(keys|products)[.]cuh'
  local reads="Read access at .*($scores|$steps|$inlined)"
  grep -qE '^=+ Error: Race reported' "$1" || return 1
  ! grep -E '^=+ +(Error|Invalid|Warning|and) ' "$1" | grep -vqE "$writes|$reads"
}

# Whether all errors are reads of what attention on wgmma has stored by the copy engine.
known_reads() {
  grep -qE '^=+ Uninitialized' "$1" || return 1
  ! grep -E '^=+     at ' "$1" | grep -vqE '::(attention_numbers|copy_vectors_kernel)<'
}

# check TOOL NAME PROGRAM PATTERN
check() {
  local tool=$1 name=$2 program=$3 pattern=$4 report status=0 start=$SECONDS verdict
  report=$out/$tool-$name-${pattern//[^a-zA-Z0-9_]/-}.txt
  timeout "$seconds" compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 \
    --print-limit 100000 \
    "$folder/$program" -tc="$pattern" > "$report" 2>&1 || status=$?
  case $status in
    0) verdict=clean ;;
    124) verdict="cut off" ;;
    9) verdict=ERRORS ;;
    *) verdict="FAILED, status $status" ;;
  esac
  if grep -qE "ERROR SUMMARY: [1-9]|RACECHECK SUMMARY: [1-9]|^=+ (Error|Invalid|Warning: Race)" \
    "$report"; then
    verdict=ERRORS
    known_races "$report" && verdict=known
    [ "$name" = attention_columns ] && known_reads "$report" && verdict=known
  fi
  printf '%-10s %-22s %-40s %4d s  %s\n' "$tool" "$name" "$pattern" $((SECONDS - start)) "$verdict"
}
export -f check known_races known_reads
export BS_TEST_SANITIZED=1 BS_TEST_DEVICE=cuda OMP_NUM_THREADS=2 out seconds folder
# shellcheck disable=SC2016
for tool in "${tools[@]}"; do
  for family in "${families[@]}"; do
    read -r name program patterns <<< "$family"
    [[ $name =~ $wanted ]] || continue
    IFS=, read -ra each <<< "$patterns"
    for pattern in "${each[@]}"; do
      printf '%s\0%s\0%s\0%s\0' "$tool" "$name" "$program" "$pattern"
    done
  done
done | xargs -0 -n 4 -P "$jobs" bash -c 'check "$0" "$@"' | tee "$out/summary.txt"
echo "reports: $out"
! grep -qE "ERRORS|FAILED" "$out/summary.txt"
