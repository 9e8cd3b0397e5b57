# Makes the wheel, unpacks it to a fresh folder, and runs the smoke test with what came out.
#   cmake -DPYTHON=... -DSOURCE=<root> -DLIBRARY=libbs_c.so -DWORK=<scratch folder> -P wheel.cmake
set(folder ${WORK}/unpacked)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND ${PYTHON} ${SOURCE}/python/make_wheel.py 1.2.3 ${SOURCE}/python/bs
                        ${LIBRARY} ${WORK} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel ${WORK}/bs-1.2.3-py3-none-*.whl)
file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${folder})
file(GLOB record ${folder}/bs-*.dist-info/RECORD)
file(STRINGS ${record} lines)
list(LENGTH lines number)
if(number LESS 9)
  message(FATAL_ERROR "RECORD names ${number} files")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${folder} --unset=BS_LIBRARY
                        ${PYTHON} ${SOURCE}/tests/python/smoke_test.py COMMAND_ERROR_IS_FATAL ANY)

# And installed by pip into a fresh environment, where Python has both.
execute_process(COMMAND ${PYTHON} -m venv ${WORK}/venv RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
  message(STATUS "no venv with pip: the wheel was not installed by pip")
  return()
endif()
execute_process(COMMAND ${WORK}/venv/bin/python -m pip install --quiet --no-index --no-deps
                        --disable-pip-version-check ${wheel} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=BS_LIBRARY
                        ${WORK}/venv/bin/python ${SOURCE}/tests/python/smoke_test.py
                COMMAND_ERROR_IS_FATAL ANY)
