package calls

// eventCalls wait for XIDs, and for GPUs that are unbound from the driver or bound to it.
var eventCalls = []Call{
	{Function: "nvmlDeviceGetSupportedEventTypes", Values: value},
	{Function: "nvmlEventSetCreate", System: true, Methods: names("Interface.EventSetCreate")},
	{Function: "nvmlEventSetFree", Key: "-", Methods: names("EventSet.Free")},
	{Function: "nvmlDeviceRegisterEvents", Key: "RegisterEvents", Methods: names("Device.RegisterEvents")},
	{Function: "nvmlEventSetWait", Newest: 2, Waits: true, System: true, Methods: names("EventSet.Wait")},
	{Function: "nvmlSystemEventSetCreate", Since: 560, System: true},
	{Function: "nvmlSystemEventSetFree", Since: 560, Key: "-"},
	{Function: "nvmlSystemRegisterEvents", Since: 560, System: true},
	{Function: "nvmlSystemEventSetWait", Since: 560, Waits: true, System: true},
}
