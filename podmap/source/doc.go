// Package source reads the data sources beside the kubelet's socket: the kubelet's device checkpoint, the checkpoint of
// a DRA driver, and the metadata of this node's pods at the API server. Each is optional and bounded, and none
// interprets what it reads.
package source
