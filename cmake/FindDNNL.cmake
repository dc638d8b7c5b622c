# oneDNN as DNNL::dnnl. Its own CMake files want OpenCL's headers, which are not needed.
find_path(DNNL_INCLUDE dnnl.h)
find_library(DNNL_LIBRARY dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE
  REASON_FAILURE_MESSAGE "Debian's libdnnl-dev has it")
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY})
endif()
mark_as_advanced(DNNL_INCLUDE DNNL_LIBRARY)
