# granary_component(NAME SOURCES file... [DEPENDS target...]): one static library gr_NAME a component.
function(granary_component name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(gr_${name} STATIC ${arg_SOURCES})
  target_link_libraries(gr_${name} PUBLIC granary_flags Threads::Threads ${arg_DEPENDS})
endfunction()
