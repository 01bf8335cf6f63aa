#!/bin/sh
# Does not enable or start the service (systemctl enable --now gpu-exporter); restarts it if it is running.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart gpu-exporter.service
fi
