# granary_strict_conversions(TARGET): what comes off a wire or a disk is decoded nearly everywhere, so no value is cut
# short unseen in the product. Tests may.
function(granary_strict_conversions target)
  target_compile_options(${target} PRIVATE -Wconversion -Wno-sign-conversion)
endfunction()

# granary_component(NAME SOURCES file... [DEPENDS target...]): one static library gr_NAME a component.
function(granary_component name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(gr_${name} STATIC ${arg_SOURCES})
  target_link_libraries(gr_${name} PUBLIC granary_flags Threads::Threads ${arg_DEPENDS})
  granary_strict_conversions(gr_${name})
endfunction()
