# CAF's core as CAF::core. Debian's CAF comes without CMake files.
find_path(CAF_INCLUDE caf/all.hpp)
find_library(CAF_CORE caf_core)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF REQUIRED_VARS CAF_CORE CAF_INCLUDE
  REASON_FAILURE_MESSAGE "Debian's libcaf-dev has it")
if(CAF_FOUND AND NOT TARGET CAF::core)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES IMPORTED_LOCATION ${CAF_CORE})
  if(NOT CAF_INCLUDE STREQUAL "/usr/include") # which must not be given again
    set_target_properties(CAF::core PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CAF_INCLUDE})
  endif()
endif()
mark_as_advanced(CAF_INCLUDE CAF_CORE)
