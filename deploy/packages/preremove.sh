#!/bin/sh
# Stops the service on removal, not on upgrade. dpkg passes remove, rpm the number of installed versions left.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now gpu-exporter.service gpu-exporter.socket
fi
