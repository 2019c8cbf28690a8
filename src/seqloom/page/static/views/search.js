// Search
import { View, register } from "seqloom/view";

class Search extends View {
  static view = "search";
  static label = "Search";
  static about = "";
}

register(Search);
