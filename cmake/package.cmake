# The examples find_package(Troupe), too, so that they can be copied: here they get the targets of this build.
file(WRITE ${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/TroupeConfig.cmake
  "set(Troupe_PROGRAM \"$<TARGET_FILE:troupe>\")\nset(Troupe_CONFIGS \"${PROJECT_SOURCE_DIR}/configs\")\n")

# What find_package(Troupe) finds. The bundle has none of it: it is for hosts that only run the program.
if(TROUPE_BUNDLE)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package lib/cmake/Troupe)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TroupeConfig.cmake.in ${CMAKE_BINARY_DIR}/TroupeConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TroupeConfig.cmake ${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake ${PROJECT_SOURCE_DIR}/cmake/FindDNNL.cmake DESTINATION ${package})
install(EXPORT Troupe NAMESPACE Troupe:: FILE TroupeTargets.cmake DESTINATION ${package})
