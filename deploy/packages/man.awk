# Makes the manual of a program's flags a page that man and apropos know: its first lines, of which kingpin knows nothing. Takes the
# variables program, version and purpose.
/^\.TH/ { printf ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", toupper(program), program, version; skipping = 1; next }
/^\.SH "NAME"/ { print; print program " \\- " purpose; getline; skipping = 0; next }
!skipping { print }
