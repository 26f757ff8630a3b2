# granary_strict_conversions(TARGET): warn where a value may be cut short. The product decodes foreign bytes nearly
# everywhere; tests need not be as strict.
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
