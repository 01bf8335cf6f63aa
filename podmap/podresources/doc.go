// Package podresources is a client of the kubelet's PodResources socket. Its requests have a timeout and its responses
// a maximum size, and both are decoded entry by entry: time grows linearly with the response, and memory with what the
// caller's Filter keeps of it. It does not interpret device IDs.
package podresources
