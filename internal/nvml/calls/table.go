package calls

import "slices"

// Calls is the table of functions, in the order of the statistics of calls.
var Calls = slices.Concat(sessionCalls, identityCalls, polled(Fast, fastCalls), polled(Medium, mediumCalls),
	polled(Slow, slowCalls), polled(Slow, migCalls), eventCalls)

func polled(by Group, list []Call) []Call {
	for i := range list {
		list[i].Group = by
	}
	return list
}

// Fields is the table of field values. Names, units and scopes are those beside the constants in nvml.h 13.4; the driver
// names the type in each entry. Sources beyond the header: 197 and 198 have 32 bits (open-gpu-kernel-modules 595.45.04,
// ctrl2080bus.h: NvU32 pexCounters); 202 and 204 are read with scope UINT_MAX (DCGM 4.6.0, DcgmCMUtils.cpp); 138 and 139
// are no counters of NVLink 5 (the same modules, knvlinkGetSupportedCounters_GB100); the power scopes of 185 and 186 are
// as the GB200 in NVIDIA/k8s-test-infra, qx-gb200.xml. FieldTypes has the type of each. No GPU has confirmed them here.
var Fields = slices.Concat(fastFields, mediumFields, slowFields)

// All returns every reading of the call and field table.
func All() []Reading {
	var list []Reading
	for i := range Fields {
		list = append(list, Fields[i].Reading)
	}
	for i := range Calls {
		list = append(list, Calls[i].Readings...)
	}
	return list
}
