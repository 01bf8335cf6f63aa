// Package proc resolves which container a process belongs to, and which GPUs are visible in a container. Outside
// Kubernetes a process belongs to a container of Docker or Podman, a Slurm job, a systemd unit or a user.
//
// Finder reads /proc/<pid>/cgroup and /proc/<pid>/stat, and the names of directories and links under /var/log/pods and
// /var/log/containers; it needs the host's PID namespace. Without the logs, another source may name a pod by its UID
// (Options.Pods). VisibleScanner reads the device nodes in containers,
// which needs CAP_SYS_PTRACE. Of an environment, one named variable is read, and nothing else is kept.
//
// A process that cannot be resolved is unknown, and never attributed to another container.
package proc
