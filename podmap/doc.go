// Package podmap tells who holds each GPU. It asks the kubelet's PodResources socket in a rhythm of its
// own, reads the device ids of the answer, and resolves them against the GPUs that the node has.
//
// A device id is believed only when its scheme is known to be honest. The key is the pair of resource name
// and shape of the id, because the same shape is honest under one name and invented under another. One
// scheme is one row of the table in schemes.go and one file. What cannot be resolved is counted as
// unresolved: the answer is then "unknown GPU", never a guess.
//
// Three more sources may be opened, each by an option of its own, and each tells of its health apart. The
// kubelet's device checkpoint says what plugins really gave containers, and so resolves schemes whose ids are
// invented; the annotations of this node's pods say what schedulers wrote, and so show schemes of which the
// kubelet lists nothing; the DRA driver's checkpoint says what was made of claims. They only add to what the
// socket lists: a pod that the kubelet does not list holds nothing, whatever else is written of it.
//
// Nothing here runs on the scrape path: Poll and Run do the input and output, Holdings is pure and cheap.
package podmap
