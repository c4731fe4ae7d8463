# What `cmake --install` installs.
include(GNUInstallDirs)
install(TARGETS rollgate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(deploy ${CMAKE_SOURCE_DIR}/deploy)
install(FILES ${deploy}/systemd/rollgate-runner.sysusers DESTINATION lib/sysusers.d RENAME rollgate-runner.conf)
foreach(name rollgate rollgate-runner)
  install(FILES ${deploy}/systemd/${name}.tmpfiles DESTINATION lib/tmpfiles.d RENAME ${name}.conf)
endforeach()
set(examples ${CMAKE_INSTALL_DATADIR}/doc/rollgate/examples)
install(FILES ${deploy}/rollgate.yaml DESTINATION ${examples})
install(FILES ${deploy}/systemd/keys.conf ${deploy}/systemd/tls.conf DESTINATION ${CMAKE_INSTALL_DATADIR}/rollgate)
install(DIRECTORY ${deploy}/kubernetes ${deploy}/compose ${deploy}/monitoring ${deploy}/nginx ${deploy}/slurm
  DESTINATION ${examples} USE_SOURCE_PERMISSIONS)
install(FILES ${deploy}/runners.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rollgate-runner/examples)
# Manual pages, completions and settings from the tables of the binary, and units that name the binary's place.
install(CODE "execute_process(COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/scripts/install_files.py $<TARGET_FILE:rollgate>
  \${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_SYSCONFDIR} COMMAND_ERROR_IS_FATAL ANY)")
