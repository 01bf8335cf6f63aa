// Package podmap resolves which GPUs are allocated to which containers. It polls the kubelet's PodResources socket and
// maps the device IDs of the response to the GPUs of the node.
//
// Device IDs that contain the GPU's UUID or index are mapped directly. Those that do not identify the GPU are resolved
// from optional data sources: the kubelet's device checkpoint, which has what plugins really gave a container; the
// annotations of this node's pods, where schedulers record their decision; and a DRA driver's checkpoint. A plugin or
// driver that is not known is resolved by what the container received. The sources only add to what the kubelet lists:
// other pods have no allocation. A GPU that no data source identifies is unresolved, and never guessed.
//
// Nothing here runs during a scrape: Poll and Run do the input and output, Allocations is pure and cheap.
package podmap
