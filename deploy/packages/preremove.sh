#!/bin/sh
# The service ends with its package, and goes on through an upgrade. dpkg says remove; rpm says how many are left.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now gpu-exporter.service gpu-exporter.socket
fi
