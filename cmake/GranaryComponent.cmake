# granary_component(NAME SOURCES file... [DEPENDS target...]): one static library gr_NAME a component.
function(granary_component name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(gr_${name} STATIC ${arg_SOURCES})
  target_link_libraries(gr_${name} PUBLIC granary_flags Threads::Threads ${arg_DEPENDS})
  # What comes off a wire or a disk is decoded nearly everywhere: no value is cut short unseen. Tests may.
  target_compile_options(gr_${name} PRIVATE -Wconversion -Wno-sign-conversion)
endfunction()
