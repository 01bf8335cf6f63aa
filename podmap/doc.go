// Package podmap tells who holds each card. It asks the kubelet's PodResources socket in a rhythm of its
// own, reads the device ids of the answer, and resolves them against the cards that the node has.
//
// A device id is believed only when its scheme is known to be honest. The key is the pair of resource name
// and shape of the id, because the same shape is honest under one name and invented under another. One
// scheme is one row of the table in schemes.go and one file. What cannot be resolved is counted as
// unresolved: the answer is then "unknown card", never a guess.
//
// Nothing here runs on the scrape path: Poll does the input and output, Holdings is pure and cheap.
package podmap
