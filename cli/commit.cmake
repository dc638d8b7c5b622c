# Writes FILE with the commit of the checkout SOURCE, "unknown" if it is none; leaves a file alone
# that says so already.
execute_process(
  COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude *
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${SOURCE}/.git)
  set(commit unknown)
endif()
set(text "extern const char* const troupe_build_commit;\nconst char* const troupe_build_commit = \"${commit}\";\n")
set(old)
if(EXISTS ${FILE})
  file(READ ${FILE} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${FILE} "${text}")
endif()
