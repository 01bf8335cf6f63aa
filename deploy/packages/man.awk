# Replaces the first lines of kingpin's manual by a title and a NAME section that man and apropos read. Variables: program, version, purpose.
/^\.TH/ { printf ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", toupper(program), program, version; skipping = 1; next }
/^\.SH "NAME"/ { print; print program " \\- " purpose; getline; skipping = 0; next }
!skipping { print }
