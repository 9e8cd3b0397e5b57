# Reads the #include lines under ROOT and fails on a breach of the include law:
#   lib <- kernels <- autograd <- nn <- examples; kernels <- c; lib <- interop
# Then counts lines and names the files over their budget.
#   cmake -DROOT=<source folder> -P layering.cmake
cmake_minimum_required(VERSION 3.25)

# What a place may include of ours, as patterns of `room/path`. The first place that matches counts.
set(places "")
# place(<name> <pattern of its files> <patterns of what they may include>...)
macro(place name files)
  list(APPEND places ${name})
  set(${name}_files ${files})
  set(${name}_may ${ARGN})
endmacro()

# Device text, from the instructions up: each of these rooms knows the ones before it.
set(device "^kernels/cuda/device")
place(device_ptx "${device}/ptx/" "${device}/ptx/")
place(device_tile "${device}/tile/" "${device}/(ptx|tile)/")
place(device_gemm "${device}/gemm/" "${device}/(ptx|tile|gemm)/")
place(device_block_sparse "${device}/block_sparse/" "${device}/(ptx|tile|gemm|block_sparse)/")
place(device_attention "${device}/attention/" "${device}/(ptx|tile|gemm|block_sparse|attention)/"
      "^lib/philox[.]h$")
place(device_lstm "${device}/lstm/" "${device}/(ptx|tile|lstm)/")
place(device_kron "${device}/kron/" "${device}/(ptx|tile|kron)/")
place(device_conv "${device}/conv/" "${device}/(ptx|tile|gemm|conv)/")
place(device "${device}/" "^$")  # every file has a room

# The hosts of the kernels. What stands in kernels/cuda itself is an operation of one file, or what
# several rooms share; it knows none of them.
set(hosts "^lib/" "^kernels/[^/]*$" "^kernels/cuda/[^/]*$")
set(cuda "^kernels/cuda")
place(cuda_gpu "${cuda}/gpu/" ${hosts} "${cuda}/gpu/")
place(cuda_jit "${cuda}/jit/" ${hosts} "${cuda}/jit/" "${device}/")
place(cuda_reduce "${cuda}/reduce/" ${hosts} "${cuda}/reduce/" "${device}/(ptx|tile)/")
place(cuda_gemm "${cuda}/gemm/" ${hosts} "${cuda}/(gpu|jit|reduce|gemm)/"
      "${device}/(ptx|tile|gemm)/")
# Plans are pure: neither CUDA's headers nor what asks a device, but for the plain lists they make.
place(cuda_plan "${cuda}/block_sparse/plan/" "^lib/[^/]*\\.h$" "^kernels/[^/]*\\.h$"
      "${cuda}/gpu/gpu\\.h$" "${cuda}/block_sparse/plan/" "${device}/block_sparse/work_split\\.cuh$")
place(cuda_block_sparse "${cuda}/block_sparse/" ${hosts}
      "${cuda}/(gpu|jit|reduce|order|gemm|block_sparse)/"
      "${device}/(ptx|tile|gemm|block_sparse)/")
place(cuda_attention "${cuda}/attention/" ${hosts} "${cuda}/(jit|gemm|block_sparse|attention)/"
      "${device}/(ptx|tile|gemm|block_sparse|attention)/")
place(cuda_lstm "${cuda}/lstm/" ${hosts} "${cuda}/(jit|gemm|lstm)/" "${device}/(ptx|tile|lstm)/")
place(cuda_kron "${cuda}/kron/" ${hosts} "${cuda}/(jit|kron)/" "${device}/(ptx|tile|kron)/")
place(cuda_conv "${cuda}/conv/" ${hosts} "${cuda}/(gpu|jit|gemm|conv)/"
      "${device}/(ptx|tile|gemm|conv)/")
place(cuda_copy "${cuda}/copy/" ${hosts} "${cuda}/copy/" "${device}/(ptx|tile)/")
place(cuda_elementwise "${cuda}/elementwise/" ${hosts} "${cuda}/elementwise/"
      "${device}/(ptx|tile)/")
place(cuda_order "${cuda}/order/" ${hosts} "${cuda}/order/" "${device}/(ptx|tile)/")
place(cuda_index "${cuda}/index/" ${hosts} "${cuda}/(order|index)/" "${device}/(ptx|tile)/")
place(cuda_norm "${cuda}/norm/" ${hosts} "${cuda}/(reduce|norm)/" "${device}/(ptx|tile)/")
place(cuda_image "${cuda}/image/" ${hosts} "${cuda}/image/" "${device}/(ptx|tile)/")
place(cuda_transducer "${cuda}/transducer/" ${hosts} "${cuda}/transducer/" "${device}/(ptx|tile)/")
place(cuda_optim "${cuda}/optim/" ${hosts} "${cuda}/optim/" "${device}/(ptx|tile)/")
place(cuda "${cuda}/[^/]*$" ${hosts} "${device}/(ptx|tile)/")
place(cuda_elsewhere "${cuda}/" "^$")  # every folder has a line above

place(cpu "^kernels/cpu/" "^lib/[^/]*$" "^kernels/[^/]*$" "^kernels/cpu/")
place(kernels "^kernels/" "^lib/[^/]*$" "^lib/cuda/runtime\\.h$" "^kernels/[^/]*$")
place(lib_cuda "^lib/(cuda/|[^/]*\\.cpp$)" "^lib/")
place(lib "^lib/" "^lib/[^/]*$")
place(interop "^interop/" "^lib/[^/]*$")
place(c "^c/" "^lib/[^/]*$" "^kernels/[^/]*$" "^c/" "^version\\.h$")
place(autograd "^autograd/" "^lib/[^/]*$" "^kernels/[^/]*$" "^autograd/")
place(nn "^nn/" "^lib/[^/]*$" "^kernels/[^/]*$" "^autograd/" "^nn/")
# The umbrella headers, or single public ones, which compile faster.
place(examples "^examples/" "^(lib|kernels|autograd|nn)\\.h$" "^(lib|kernels)/[^/]*$" "^(autograd|nn)/"
      "^examples/")

# CUDA's own headers, and where they may be; device text gets the three that NVRTC has too.
set(cuda_headers "^(cuda|cub/|thrust/|cublas|nvrtc|nvtx3/|nccl|cooperative_groups)")
set(cuda_header_places "^(lib/cuda/|kernels/cuda/|lib/trace[^/]*\\.cpp$)")
set(device_headers "^cuda_(fp16|bf16|fp8)\\.h$")
# Calls at which the host waits for a GPU, or may, and where they stand: at the front doors of a wait
# and where something is made once, measured, or taken apart. No operation waits otherwise.
string(JOIN "|" waits "(Device|Stream|Event)(Synchronize|Query)" "Malloc(Host|Managed|3D|Pitch|Array)?"
       "Free(Host|Array)?" "Host(Alloc|Register|Unregister)" "Mem(cpy|set)(2D|3D)?" "MemGetInfo"
       "Memcpy(To|From)Symbol" "MemPoolTrimTo" "DeviceReset")
set(waits "cuda(${waits})[ \t\n]*\\(")
string(JOIN "|" wait_places
       "lib/cuda/runtime[.]cpp"    # synchronize()
       "lib/cuda/pool[.]cpp"       # memory ran out, or a stream is gone
       "lib/cuda/graph[.]cpp"      # the end of a graph
       "lib/cuda/upload[.]cpp"     # looks whether a copy is made; pins memory
       "lib/cuda/gave_up[.]cpp"    # pins a word, once
       "lib/cuda/jit[.]cpp"        # loads a kernel
       "lib/cuda/activity[.]cpp"   # the end of a profile
       "kernels/cuda/gpu/work_time[.]cpp"  # with BS_TUNE alone
       "kernels/cuda/gpu/gpu_measure[.]cpp" "kernels/cuda/lstm/lstm_persistent_launch[.]cuh"  # once
)
set(wait_places "^(${wait_places})$")
# Where memory is looked at.
set(data_places "^(lib/|interop/|kernels/(cpu|cuda)/)")

set(breaches "")
set(over_budget "")
set(total 0)
function(breach file text)
  set(breaches "${breaches}\n  ${file}: ${text}" PARENT_SCOPE)
endfunction()

# One <include> of a file in `place`.
function(check_include file place target)
  set(allowed "")
  if(target MATCHES "^bs/")
    string(SUBSTRING "${target}" 3 -1 path)
    foreach(pattern IN LISTS ${place}_may)
      if(path MATCHES "${pattern}")
        set(allowed yes)
      endif()
    endforeach()
  elseif(place MATCHES "^device")
    string(REGEX MATCH "${device_headers}" allowed "${target}")
  elseif(target MATCHES "${cuda_headers}")
    if(NOT place STREQUAL "cuda_plan")
      string(REGEX MATCH "${cuda_header_places}" allowed "${file}")
    endif()
  else()
    set(allowed yes)
  endif()
  if(NOT allowed)
    breach(${file} "must not include <${target}>")
    set(breaches "${breaches}" PARENT_SCOPE)
  endif()
endfunction()

function(check_file file place)
  file(READ ${ROOT}/${file} text)
  string(REGEX MATCHALL "\n[ \t]*#[ \t]*include[ \t]*<[^>\n]*" includes "\n${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE ".*<" "" target "${include}")
    check_include(${file} ${place} ${target})
  endforeach()
  # So that each such public header is compiled alone, without a test's making.
  string(REGEX REPLACE "cpp$" "h" beside ${file})
  if(file MATCHES "^(lib|kernels|autograd|nn)/.*\\.cpp$" AND NOT file MATCHES "/(cpu|cuda)/" AND
     EXISTS ${ROOT}/${beside})
    list(POP_FRONT includes first)
    if(NOT first MATCHES "<bs/${beside}$")
      breach(${file} "must include <bs/${beside}> before all else")
    endif()
  endif()
  if("\n${text}" MATCHES "\n[ \t]*#[ \t]*include[ \t]*\"([^\"\n]*)" AND NOT place STREQUAL "examples")
    breach(${file} "includes \"${CMAKE_MATCH_1}\" in quotes; write <bs/...>")
  endif()
  if(text MATCHES "(\\.|->)data<" AND NOT file MATCHES "${data_places}")
    breach(${file} "looks at memory: data<T>() is for kernels/cpu and kernels/cuda")
  endif()
  if(NOT file MATCHES "${wait_places}" AND text MATCHES "${waits}")
    breach(${file} "waits for a GPU: cuda${CMAKE_MATCH_1}() is for the places that layering.cmake names")
  endif()
  set(breaches "${breaches}" PARENT_SCOPE)
endfunction()

function(count_lines file)
  set(budget 400)
  if(file MATCHES "\\.h$")
    set(budget 200)
  elseif(file MATCHES "\\.cuh?$")
    set(budget 500)
  endif()
  file(READ ${ROOT}/${file} text)
  string(REGEX MATCHALL "\n" ends "${text}")
  list(LENGTH ends count)
  if(count GREATER budget)
    set(over_budget "${over_budget}\n  ${file}: ${count} lines, budget ${budget}" PARENT_SCOPE)
  endif()
  math(EXPR total "${total} + ${count}")
  set(total ${total} PARENT_SCOPE)
endfunction()

foreach(room lib kernels c autograd nn examples tests bench)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${room}/*.h ${ROOT}/${room}/*.cpp
       ${ROOT}/${room}/*.cu ${ROOT}/${room}/*.cuh)
  set(total 0)
  list(LENGTH files number)
  foreach(file IN LISTS files)
    count_lines(${file})
    foreach(place IN LISTS places)
      if(file MATCHES "${${place}_files}")
        check_file(${file} ${place})
        break()
      endif()
    endforeach()
  endforeach()
  message(STATUS "${room}: ${number} files, ${total} lines")
endforeach()
if(over_budget)
  message(STATUS "over budget:${over_budget}")
endif()
if(breaches)
  message(FATAL_ERROR "layering:${breaches}")
endif()
