// Package deviceid maps device IDs to GPUs. It is pure: no input or output, no clock.
//
// An ID names a GPU only under the scheme that wrote it, and the same form names the GPU under one resource name and a
// random one under another. The key is therefore the pair of resource name and form of the ID. One scheme is one row of
// the table in schemes.go. An ID is direct where it contains the UUID or index of the GPU, and opaque where it does not
// identify the GPU; the GPUs of an opaque one are then those that the container received by the plugin's response to the
// kubelet, or that are in the pod's annotations (Scheme.Resolve). Where neither has them they are not identified, and
// never guessed.
package deviceid
