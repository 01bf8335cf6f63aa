// Package proc says what a process belongs to: a pod's container, and outside Kubernetes a container, a
// Slurm job, a systemd unit or a user. Its sources are /proc/<pid>/cgroup and /proc/<pid>/stat, and the names
// of directories and links under /var/log/pods and /var/log/containers; it needs the host's PID namespace
// and asks no API. Where logs are not mounted, whoever else knows a pod by its UID may name it (Options.Pods).
//
// What a container sees is a second question, asked only where the right to look into it was given (CAP_SYS_PTRACE):
// see Looker. Of an environment one named variable is read, and nothing else is kept.
//
// A name is only given when both ends of it were read: a process that cannot be placed is unknown, never
// somebody's.
package proc
