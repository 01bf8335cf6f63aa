# Makes the manual of the flags a page that man and apropos know: its first lines, of which kingpin knows nothing.
/^\.TH/ { print ".TH GPU-EXPORTER 1 \"\" \"gpu-exporter " v "\" \"User Commands\""; skipping = 1; next }
/^\.SH "NAME"/ { print; print "gpu-exporter \\- Prometheus exporter of NVIDIA GPUs"; getline; skipping = 0; next }
!skipping { print }
END {
	print ".SH \"FILES\""
	print ".TP\n\\fB/etc/default/gpu-exporter\\fR\nThe environment of gpu-exporter.service. Every flag may be given by a variable: \\-\\-lane.fast is GPU_EXPORTER_LANE_FAST."
	print ".SH \"EXIT STATUS\""
	print ".TP\n\\fB0\\fR\nStopped by a signal, or a text was asked for."
	print ".TP\n\\fB1\\fR\nSomething broke while running."
	print ".TP\n\\fB2\\fR\nA flag, a configuration or a port: nothing was started."
	print ".TP\n\\fB3\\fR\nThe driver's library and kernel module differ."
	print ".TP\n\\fB10\\fR, \\fB20\\fR\ngpu-exporter doctor found something to warn of, or something broken."
}
